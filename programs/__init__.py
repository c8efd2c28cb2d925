"""hopgate.programs"""
