# The Python package: a usable copy in the build tree (PYTHONPATH=<build>/python), and what pip installs.
set(package ${PROJECT_BINARY_DIR}/python/ranvier)
file(MAKE_DIRECTORY ${package})
configure_file(${PROJECT_SOURCE_DIR}/python/ranvier/_build.py.in ${package}/_build.py @ONLY)
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/ranvier/*.py)
foreach(source ${sources})
  cmake_path(GET source FILENAME name)
  file(CREATE_LINK ${source} ${package}/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${package}/bin SYMBOLIC)
set(beside ${PROJECT_SOURCE_DIR}/python/_ranvier_autoload.py ${PROJECT_SOURCE_DIR}/python/_ranvier_command.py)
foreach(source ${beside})
  cmake_path(GET source FILENAME name)
  file(CREATE_LINK ${source} ${PROJECT_BINARY_DIR}/python/${name} SYMBOLIC)
endforeach()
set_target_properties(ranvier_core ranvier_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package})
# Also what lets torch find the backend without `import ranvier`; pip writes the same from pyproject.toml.
set(information ${PROJECT_BINARY_DIR}/python/ranvier-${PROJECT_VERSION}.dist-info)
file(WRITE ${information}/METADATA "Metadata-Version: 2.1\nName: ranvier\nVersion: ${PROJECT_VERSION}\n")
file(WRITE ${information}/entry_points.txt
     "[torch.backends]\nranvier = _ranvier_autoload:register\n"
     "[torch.distributed.backends]\nranvier = _ranvier_autoload:register\n")

# scikit-build-core adds the Python sources, and installs the rest as component "python" beside torch's own folder.
set_target_properties(ranvier_core PROPERTIES INSTALL_RPATH "$ORIGIN")
set_target_properties(ranvier_torch PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
install(TARGETS ranvier_core ranvier_torch LIBRARY DESTINATION ranvier COMPONENT python)
install(FILES ${package}/_build.py DESTINATION ranvier COMPONENT python)
install(FILES ${beside} DESTINATION . COMPONENT python)

# What `python -m ranvier rebuild` compiles for another torch: the same sources, against the same core.
set(native ${package}/native)
file(MAKE_DIRECTORY ${native}/integrations)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/native/CMakeLists.txt ${native}/CMakeLists.txt SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${native}/torch.cmake SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${native}/include SYMBOLIC)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${native}/integrations/torch SYMBOLIC)
install(FILES ${PROJECT_SOURCE_DIR}/python/native/CMakeLists.txt ${PROJECT_SOURCE_DIR}/cmake/torch.cmake
        DESTINATION ranvier/native COMPONENT python)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include DESTINATION ranvier/native COMPONENT python)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/ DESTINATION ranvier/native/integrations/torch COMPONENT python
        FILES_MATCHING PATTERN "*.cc" PATTERN "*.h")

# The programs stand in folders that CMake reads after this one.
function(ranvier_install_programs)
  foreach(program ranvier ranvier-train ranvier-bench-mpi)
    if(TARGET ${program})
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
      install(TARGETS ${program} RUNTIME DESTINATION ranvier/bin COMPONENT python)
    endif()
  endforeach()
  install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ranvier-bench-torch.py DESTINATION ranvier/bin COMPONENT python OPTIONAL)
endfunction()
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL ranvier_install_programs)
