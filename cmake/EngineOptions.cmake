# engine_options: what every target of the project is compiled with.
add_library(engine_options INTERFACE)
target_compile_options(engine_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -fno-math-errno -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105329).
  target_compile_options(engine_options INTERFACE -Wno-restrict)
endif()
if(ENGINE_WERROR)
  target_compile_options(engine_options INTERFACE -Werror)
endif()
if(ENGINE_SANITIZE)
  target_compile_options(engine_options INTERFACE
    -fsanitize=${ENGINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(engine_options INTERFACE -fsanitize=${ENGINE_SANITIZE})
endif()
if(ENGINE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ENGINE_FUZZ needs clang++: use the fuzz preset")
  endif()
  target_compile_options(engine_options INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_link_options(engine_options INTERFACE -fsanitize=address,undefined)
endif()
if(ENGINE_CUDA)
  message(FATAL_ERROR "ENGINE_CUDA: this version has no CUDA backend yet; build without it")
endif()
