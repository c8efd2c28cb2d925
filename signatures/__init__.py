"""hopgate.signatures"""
