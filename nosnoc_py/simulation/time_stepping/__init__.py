"""Time-stepping of contact mechanics: impulses of whole steps, no events to find, first order."""
