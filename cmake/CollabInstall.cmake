# Installs and exports the torch-free core: `find_package(collab)` gives collab::<folder> targets.
# Component "core"; the Python module is component "python", so that the wheel takes only that.

include(CMakePackageConfigHelpers)

get_property(COLLAB_CORE_TARGETS GLOBAL PROPERTY COLLAB_CORE_TARGETS)
install(TARGETS ${COLLAB_CORE_TARGETS} EXPORT collab
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)
install(EXPORT collab NAMESPACE collab:: FILE collab-targets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/collab COMPONENT core)

# Public headers, and the headers of the core and of the transports that a program without torch can use.
install(DIRECTORY include/collab DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core
        FILES_MATCHING PATTERN "*.h" PATTERN "torch" EXCLUDE)
install(DIRECTORY plugin/core plugin/transport DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT core
        FILES_MATCHING PATTERN "*.h" PATTERN "gloo" EXCLUDE)

configure_package_config_file(cmake/collab-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/collab-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/collab)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/collab-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/collab-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/collab-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/collab COMPONENT core)
