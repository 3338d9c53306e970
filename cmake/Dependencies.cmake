# What Lockstep takes from elsewhere; ./run names the Debian packages.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(dnnl CONFIG REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_path(BOOST_MATH_INCLUDE_DIR boost/math/distributions/students_t.hpp REQUIRED)  # headers only

add_library(lockstep_dependencies INTERFACE)
target_include_directories(lockstep_dependencies INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated
  ${XXHASH_INCLUDE_DIR} ${BOOST_MATH_INCLUDE_DIR})
target_link_libraries(lockstep_dependencies INTERFACE
  Threads::Threads fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11 DNNL::dnnl ${XXHASH_LIBRARY})
