"""Validation rules that a schema cannot express, one module for each kind or group of kinds."""
