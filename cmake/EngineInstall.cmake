message(STATUS "install: see below")
