"""A system of its own, outside the package: which shape a picture shows. `register_system(SYSTEM)` adds it."""
