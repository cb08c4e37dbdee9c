# Looks for cuda.h and nvrtc.h: in an installed toolkit, else among the Python wheels that
# tools/setup unpacks into .deps/cuda. Only headers: nothing is ever linked against a CUDA library.
#
# Sets LAYA_CUDA_FOUND and LAYA_CUDA_ROOT (the folder with include/ and the libraries).
option(LAYA_CUDA "Build the CUDA backend if its headers are found" ON)

set(LAYA_CUDA_FOUND OFF)
if(LAYA_CUDA)
  file(GLOB wheel_roots LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.deps/cuda/nvidia/cu*")
  find_path(LAYA_CUDA_INCLUDE_DIR NAMES nvrtc.h NO_CMAKE_SYSTEM_PATH PATH_SUFFIXES include
            HINTS ${CUDAToolkit_ROOT} ENV CUDA_PATH ENV CUDA_HOME
            PATHS /usr/local/cuda ${wheel_roots} /opt/cuda /usr/lib/cuda /usr
            DOC "Folder with cuda.h and nvrtc.h of CUDA 12 or later")
  if(LAYA_CUDA_INCLUDE_DIR AND EXISTS "${LAYA_CUDA_INCLUDE_DIR}/cuda.h")
    file(STRINGS "${LAYA_CUDA_INCLUDE_DIR}/cuda.h" version_line LIMIT_COUNT 1
         REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+$" LAYA_CUDA_VERSION "${version_line}")
    # 12.0 brought cuLibraryLoadData, which loads a kernel for every context of the process.
    if(LAYA_CUDA_VERSION GREATER_EQUAL 12000)
      set(LAYA_CUDA_FOUND ON)
      cmake_path(GET LAYA_CUDA_INCLUDE_DIR PARENT_PATH LAYA_CUDA_ROOT)
    endif()
  endif()
endif()

if(LAYA_CUDA_FOUND)
  message(STATUS "CUDA headers: ${LAYA_CUDA_INCLUDE_DIR} (${LAYA_CUDA_VERSION})")
elseif(LAYA_CUDA)
  message(STATUS "CUDA headers: none of version 12 or later; building without GPU targets "
                 "(run tools/setup, or set CUDAToolkit_ROOT)")
else()
  message(STATUS "CUDA headers: not looked for (LAYA_CUDA=OFF); building without GPU targets")
endif()
