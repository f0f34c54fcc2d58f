# What `cmake --install` puts where find_package(ranvier) finds it: the libraries, their headers, and how they depend on one
# another. Component "cpp"; the Python package is component "python", see integrations/torch/package.cmake.
#
#   find_package(ranvier REQUIRED)                   # ranvier::engine, ranvier::exchange, …
#   find_package(ranvier REQUIRED COMPONENTS torch)  # and ranvier::torch_backend, ranvier::trainer
#   find_package(ranvier REQUIRED COMPONENTS plan)   # and ranvier::plan, ranvier::chakra: simulator, planner, design
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ranvier)

function(ranvier_install export)
  foreach(target ${ARGN})
    string(REGEX REPLACE "^ranvier_" "" name ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    install(TARGETS ${target} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
  endforeach()
  install(EXPORT ${export} NAMESPACE ranvier:: DESTINATION ${package_folder} COMPONENT cpp)
endfunction()

ranvier_install(ranvier-targets ranvier_base ranvier_kernel ranvier_schedule ranvier_topology ranvier_codec
                ranvier_sync ranvier_transport ranvier_engine ranvier_exchange ranvier_replica)
if(TARGET ranvier_chakra_messages)
  set(RANVIER_CHAKRA_MESSAGES ranvier_chakra_messages)
endif()
ranvier_install(ranvier-plan-targets ranvier_plan ranvier_chakra ${RANVIER_CHAKRA_MESSAGES})
install(DIRECTORY include/ranvier DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(FILES proto/ranvier_parameter_server.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/ranvier COMPONENT cpp)
if(RANVIER_TORCH)
  ranvier_install(ranvier-torch-targets ranvier_torch_backend ranvier_trainer_data ranvier_trainer)
  install(FILES integrations/torch/backend.h integrations/trainer/gradient_buckets.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ranvier/torch COMPONENT cpp)
  install(FILES cmake/torch.cmake DESTINATION ${package_folder} COMPONENT cpp)
endif()

configure_package_config_file(cmake/ranvier-config.cmake.in ranvier-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(ranvier-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ranvier-config.cmake ${PROJECT_BINARY_DIR}/ranvier-config-version.cmake
        DESTINATION ${package_folder} COMPONENT cpp)
