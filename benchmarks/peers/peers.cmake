# What `ranvier bench --baseline` measures beside ranvier. They stand beside the program, which looks for them there.
configure_file(${CMAKE_CURRENT_LIST_DIR}/torch_peer.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ranvier-bench-torch.py COPYONLY)

find_package(MPI COMPONENTS C)
if(MPI_C_FOUND)
  add_executable(ranvier-bench-mpi ${CMAKE_CURRENT_LIST_DIR}/mpi_peer.cc)
  target_compile_definitions(ranvier-bench-mpi PRIVATE OMPI_SKIP_MPICXX)
  target_link_libraries(ranvier-bench-mpi PRIVATE ranvier_bench_peer MPI::MPI_C ranvier_flags fmt::fmt)
else()
  message(STATUS "no MPI: 'ranvier bench --baseline mpi' will not be there; install libopenmpi-dev")
endif()
