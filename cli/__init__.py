"""hopgate.cli"""
