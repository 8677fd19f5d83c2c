# `cmake --install`: the program and what it is documented by. CUDA's libraries are found when it runs.
include(GNUInstallDirs)
install(TARGETS qtrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT qtrain)
install(FILES LICENSE NOTICE CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT qtrain)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT qtrain FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
