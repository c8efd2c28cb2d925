"""hopgate.lms"""
