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
set_target_properties(ranvier_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package})
# Also what lets torch find the backend without `import ranvier`; pip writes the same from pyproject.toml.
set(information ${PROJECT_BINARY_DIR}/python/ranvier-${PROJECT_VERSION}.dist-info)
file(WRITE ${information}/METADATA "Metadata-Version: 2.1\nName: ranvier\nVersion: ${PROJECT_VERSION}\n")
file(WRITE ${information}/entry_points.txt "[torch.backends]\nranvier = ranvier._register:autoload\n")

# scikit-build-core adds the Python sources, and installs the rest as component "python" beside torch's own folder.
set_target_properties(ranvier_torch PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib")
install(TARGETS ranvier_torch LIBRARY DESTINATION ranvier COMPONENT python)
install(FILES ${package}/_build.py DESTINATION ranvier COMPONENT python)

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
