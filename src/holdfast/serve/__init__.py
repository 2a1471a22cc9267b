"""Learners over HTTP: an application over `Learner`, with journals, tokens, limits, metrics and a page."""
