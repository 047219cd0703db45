# engine: the library. Floors are folders (docs/tour.md); nothing includes upward.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(oneDNN 2.6 REQUIRED)
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
  PRIVATE $<BUILD_INTERFACE:engine_options> oneDNN::dnnl OpenMP::OpenMP_CXX spdlog::spdlog
    $<BUILD_INTERFACE:tomlplusplus::tomlplusplus> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    PkgConfig::PCRE2 PkgConfig::SENTENCEPIECE PkgConfig::XXHASH)
