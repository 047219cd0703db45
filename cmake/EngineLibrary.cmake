# engine: the library. Floors are folders (docs/tour.md); nothing includes upward.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(oneDNN 2.6 REQUIRED)
find_package(Gloo REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

file(GLOB ENGINE_SOURCES CONFIGURE_DEPENDS
  src/*/*.cpp ops/*.cpp ops/cpu/*.cpp optim/*.cpp checkpoint/*.cpp)
add_library(engine STATIC ${ENGINE_SOURCES})
add_library(engine::engine ALIAS engine)
target_include_directories(engine
  PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
  PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_features(engine PUBLIC cxx_std_20)
target_link_libraries(engine
  PUBLIC fmt::fmt Threads::Threads
  PRIVATE $<BUILD_INTERFACE:engine_options> oneDNN::dnnl gloo OpenMP::OpenMP_CXX spdlog::spdlog
    $<BUILD_INTERFACE:tomlplusplus::tomlplusplus> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    PkgConfig::PCRE2 PkgConfig::SENTENCEPIECE PkgConfig::XXHASH)

# ops/cpu/isa: the CPU kernels, once per instruction set (ops/cpu/isa/isa.hpp).
set(ENGINE_CPU_LEVELS 1)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND ENGINE_CPU_LEVELS 3)
  if(NOT ENGINE_SANITIZE AND NOT ENGINE_FUZZ)  # where build time counts more than speed
    list(APPEND ENGINE_CPU_LEVELS 4)
  endif()
endif()
# Multiply-adds may be contracted: results need to be reproducible on one machine only. A library,
# so that its option follows that of engine_options.
add_library(engine_contraction INTERFACE)
target_compile_options(engine_contraction INTERFACE $<$<NOT:$<CONFIG:Debug>>:-ffp-contract=fast>)
file(GLOB ENGINE_CPU_KERNELS CONFIGURE_DEPENDS ops/cpu/isa/*.cpp)
foreach(level ${ENGINE_CPU_LEVELS})
  set(kernels engine_cpu_level_${level})
  add_library(${kernels} OBJECT ${ENGINE_CPU_KERNELS})
  target_compile_definitions(${kernels} PRIVATE ENGINE_CPU_LEVEL=${level})
  # Traps off: loops with selections vectorise.
  target_compile_options(${kernels} PRIVATE -fopenmp-simd -fno-trapping-math
    $<$<CONFIG:Release>:-O3> $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_include_directories(${kernels} PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(${kernels} PRIVATE engine_options fmt::fmt)
  if(level GREATER 1)
    target_link_libraries(${kernels} PRIVATE engine_contraction)
    target_compile_definitions(engine PRIVATE ENGINE_CPU_HAS_LEVEL_${level})
  endif()
  target_sources(engine PRIVATE $<TARGET_OBJECTS:${kernels}>)
endforeach()
set_source_files_properties(src/core/version.cpp PROPERTIES
  COMPILE_DEFINITIONS
  "ENGINE_VERSION=\"${PROJECT_VERSION}\";ENGINE_GLOO_VERSION=\"${Gloo_VERSION}\"")
