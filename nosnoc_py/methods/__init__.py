"""Methods of full standing beside finite elements: indirect ones, shooting, event-selected and variational integration.

Only `nosnoc_py.api` and the package itself import them: the core does not depend on any of them.
"""
