"""hopgate.optimizers"""
