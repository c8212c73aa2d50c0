"""Storms over conversations: approvals, questions, added texts and cancels, while processes are killed."""
