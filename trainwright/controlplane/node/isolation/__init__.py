"""Kernel isolation of containers: namespaces and an own root file system, without images, without root and without set-uid helpers."""
