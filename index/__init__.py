"""hopgate.index"""
