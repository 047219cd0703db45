# cmake --install: library, headers, commands, documents, and a package for find_package(engine).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(ENGINE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/engine)

install(TARGETS engine EXPORT engineTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/engine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
install(EXPORT engineTargets NAMESPACE engine:: DESTINATION ${ENGINE_PACKAGE_DIR})

configure_package_config_file(cmake/engineConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/engineConfig.cmake INSTALL_DESTINATION ${ENGINE_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/engineConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/engineConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/engineConfigVersion.cmake
  cmake/FindoneDNN.cmake
  DESTINATION ${ENGINE_PACKAGE_DIR})

get_property(commands DIRECTORY apps PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER commands INCLUDE REGEX "^app_")
install(TARGETS ${commands} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL FILES_MATCHING PATTERN "*.md")
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
