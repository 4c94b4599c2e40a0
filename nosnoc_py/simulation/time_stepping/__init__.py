"""Time-stepping of contact mechanics: impulses over whole steps, no location of events, first order."""
