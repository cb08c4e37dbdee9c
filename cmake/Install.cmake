# What `cmake --install` puts where: public headers, libraries, the command, and the package that
# find_package(laya) finds. liblaya_llvm.so is installed by jit/llvm.
include(CMakePackageConfigHelpers)

foreach(library cache templates jit model)
  set_target_properties(laya_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS laya_${library} EXPORT laya-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(TARGET laya)
  install(TARGETS laya RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The public headers; all others are how it is done and may change.
set(cache_headers bundle directory key layers log result store)
set(jit_headers compiler cpu_threads device engine kernel kernel_spec options target template)
set(model_headers batch config dtype model op ops plan prediction synthetic)
foreach(folder cache jit model)
  list(TRANSFORM ${folder}_headers PREPEND ${PROJECT_SOURCE_DIR}/${folder}/)
  list(TRANSFORM ${folder}_headers APPEND .h)
  install(FILES ${${folder}_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/laya/${folder})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/jit/laya_jit.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/laya/jit)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/laya)
install(EXPORT laya-targets NAMESPACE laya:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/laya-config.cmake.in
                              ${PROJECT_BINARY_DIR}/laya-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/laya-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/laya-config.cmake
              ${PROJECT_BINARY_DIR}/laya-config-version.cmake
        DESTINATION ${package_dir})
