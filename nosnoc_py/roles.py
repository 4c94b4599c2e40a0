"""Roles of variables, equations and pairs as data: names and labels are for people, and no code reads them.

Whoever writes a variable, an equation or a pair gives it a role, and it stays with it to the program, to the solution
and to its file. The solvers of `nosnoc_py.mpcc` carry roles and know none of them.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """Role of a variable, an equation, a pair or a series. Values are written to files: they must not change."""

    # --- states, controls, time ---
    STATE = "state"
    STATE_DERIVATIVE = "derivative of the state"
    CONTROL = "control"
    PARAMETER = "parameter"
    FREE_PARAMETER = "free parameter"
    HORIZON = "horizon"
    STEP = "relative length of an element"
    STAGE_LENGTH = "relative length of a control stage"
    SPEED_OF_TIME = "speed of time"
    CLOCK = "clock"
    COSTATE = "costate"  # of a method that solves for it
    COSTATE_ESTIMATE = "costate told by multipliers"

    # --- Runge-Kutta equations and what finite elements add to them ---
    DYNAMICS = "dynamics"
    STAGE_STATES = "states at the stages"
    RIGHT_END = "state at the right end"
    STATE_BOUNDS = "bounds of the state"
    SUM_OF_STEPS = "sum of the steps of a control stage"
    SUM_OF_STAGES = "sum of the control stages"
    STEP_EQUILIBRATION = "step equilibration"
    EQUILIBRATION_INDICATOR = "indicator of step equilibration"
    ISOLATION = "isolation of a switch"
    SIGNED_SIDE = "parts of a side of either sign"
    COHERENCE = "coherence of directions"

    # --- the user's own ---
    CONSTRAINT = "constraint"
    EPIGRAPH = "slack of a kink of the cost"
    ALGEBRAIC = "algebraic"
    COMPLEMENTARITY = "complementarity"

    # --- Filippov systems ---
    CONVEX_MULTIPLIER = "convex multiplier"
    REGION_MULTIPLIER = "multiplier of a region"
    LOWEST_INDICATOR = "lowest indicator"
    INDICATORS = "indicators of the regions"
    SIMPLEX = "sum of the convex multipliers"
    REGION = "region"
    STEP_FUNCTION = "step function"
    NEGATIVE_PART = "negative part of a switching function"
    POSITIVE_PART = "positive part of a switching function"
    FUNCTION_PARTS = "parts of the switching functions"
    PRODUCT = "product of step functions"
    CONSTRAINT_FORCE = "force of a constraint"
    PROJECTION = "projection onto a constraint"

    # --- contacts ---
    GAP = "gap"
    NORMAL_VELOCITY = "normal velocity"
    TANGENTIAL_VELOCITY = "tangential velocity"
    NORMAL_FORCE = "normal force"
    CONTACT = "gap against normal force"
    ACCELERATION = "acceleration"
    MOMENTUM = "momentum"
    GAP_RATE = "rate of a gap"
    GAP_RATE_PLUS = "positive part of the rate of a gap"
    GAP_RATE_MINUS = "negative part of the rate of a gap"
    GAP_RATE_PARTS = "parts of the rate of a gap against each other"
    DRIFT_PLUS = "positive part of the drift that keeps a gap closed"
    DRIFT_MINUS = "negative part of the drift that keeps a gap closed"
    DRIFT = "gap against drift"
    DRIFT_PARTS = "parts of the drift against each other"
    HOLDING = "drift and force against the rate of a gap"

    # --- impacts ---
    VELOCITY_AFTER = "velocity after the jump"
    NORMAL_IMPULSE = "normal impulse"
    REBOUND_PLUS = "positive part of the law of restitution"
    REBOUND_MINUS = "negative part of the law of restitution"
    IMPULSE_BALANCE = "impulse balance"
    RESTITUTION = "law of restitution"
    IMPACT_GUARD = "gap after an impact"
    IMPACT = "gap against normal impulse"
    IMPACT_VELOCITY = "law of restitution against normal impulse"
    REBOUND_PARTS = "parts of the law of restitution against each other"

    # --- friction, of forces and of impulses ---
    TANGENTIAL_FORCE = "tangential force"
    CONE_FORCE = "force along a direction of a polyhedral cone"
    FRICTION_RADIUS = "size of the friction force"
    FRICTION_DIRECTION = "direction of the friction force"
    SLIP_SPEED = "speed of slip"
    SLIP_PLUS = "positive part of the slip velocity"
    SLIP_MINUS = "negative part of the slip velocity"
    SLIP_MULTIPLIER = "multiplier of the friction cone"
    SLIP_VELOCITY = "slip velocity"
    UNIT_DIRECTION = "length of the direction of friction"
    RADIUS_BOUND = "lower bound of the size of the friction force"
    MAXIMAL_DISSIPATION = "maximal dissipation"
    SLIP = "slip against the end of the cone"
    SLIP_PARTS = "parts of the slip velocity against each other"
    SLIP_DIRECTION = "directions of slip against forces"

    # --- time-freezing ---
    AUXILIARY_WEIGHT = "weight of an auxiliary motion"
    CLOCK_RATE = "rate of the clock"

    def __repr__(self) -> str:
        return f"Role.{self.name}"
