"""hopgate.evaluation"""
