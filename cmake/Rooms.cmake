# A room is a folder of objects. The library, the program and each room's tests link the objects of
# the rooms they may use and no others, so that an arrow back does not link.
set(LOCKSTEP_ROOMS "" CACHE INTERNAL "")

# Vector loops (core/kernels/cpu/*_loops.cpp) are compiled once per instruction set; everything in
# them is static but for one table. See Note [One table per instruction set] in core/kernels/cpu/isa.h.
# lockstep_vector_loops(TARGET PREFIX [FAMILY...]) gives TARGET the objects PREFIX_<set> of all or
# some families.
function(lockstep_vector_loops target prefix)
  file(GLOB loops CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/kernels/cpu/*_loops.cpp)
  if(ARGN)
    list(JOIN ARGN "|" families)
    list(FILTER loops INCLUDE REGEX "/(${families})_loops\\.cpp$")
  endif()
  if(NOT loops)
    return()
  endif()
  set(optimise -O3)
  if(LOCKSTEP_SANITIZE)
    set(optimise -O1)  # a third of the time to compile what is tested, not timed
  endif()
  set(sets Baseline)
  set(flags_Baseline "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets Avx2 Avx512)
    set(flags_Avx2 -mavx2 -mfma -mf16c)
    set(flags_Avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  endif()
  foreach(set ${sets})
    set(objects ${prefix}_${set})
    add_library(${objects} OBJECT ${loops})
    target_include_directories(${objects} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(${objects} PRIVATE LOCKSTEP_ISA=${set} LOCKSTEP_ISA_${set}=1)
    target_compile_options(${objects} PRIVATE ${optimise} -fno-math-errno -fno-trapping-math -ffp-contract=off -Wno-psabi ${flags_${set}})
    target_sources(${target} INTERFACE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()

# lockstep_room(NAME MAY_INCLUDE...) makes the objects of a room.
function(lockstep_room room)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${room}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_loops\\.cpp$|/main\\.cpp$")
  add_library(lockstep_${room} INTERFACE)
  target_link_libraries(lockstep_${room} INTERFACE lockstep_dependencies)
  if(sources)
    add_library(lockstep_${room}_objects OBJECT ${sources})
    target_link_libraries(lockstep_${room}_objects PRIVATE lockstep_dependencies)
    target_sources(lockstep_${room} INTERFACE $<TARGET_OBJECTS:lockstep_${room}_objects>)
  endif()
  if(room STREQUAL "core")
    lockstep_vector_loops(lockstep_${room} lockstep_loops)
  endif()
  set(LOCKSTEP_USES_${room} ${ARGN} CACHE INTERNAL "")
  set(LOCKSTEP_ROOMS ${LOCKSTEP_ROOMS} ${room} CACHE INTERNAL "")
endfunction()

# The installed library: one shared object of all rooms but apps. Shared, because a static archive
# would drop the objects that only register themselves.
function(lockstep_library)
  add_library(lockstep SHARED)
  add_library(lockstep::lockstep ALIAS lockstep)
  set_target_properties(lockstep PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION})
  foreach(room ${LOCKSTEP_ROOMS})
    if(NOT room STREQUAL "apps")
      target_link_libraries(lockstep PRIVATE lockstep_${room})
    endif()
  endforeach()
  target_include_directories(lockstep INTERFACE ${CMAKE_SOURCE_DIR})
  target_link_libraries(lockstep PUBLIC fmt::fmt)  # core/check.h formats in the caller
  target_compile_features(lockstep PUBLIC cxx_std_20)
endfunction()

function(lockstep_program)
  if(EXISTS ${CMAKE_SOURCE_DIR}/apps/main.cpp)
    add_executable(lockstep_program ${CMAKE_SOURCE_DIR}/apps/main.cpp)
    set_target_properties(lockstep_program PROPERTIES OUTPUT_NAME lockstep RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    target_link_libraries(lockstep_program PRIVATE lockstep_apps lockstep lockstep_dependencies)
  endif()
endfunction()
