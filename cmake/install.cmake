# `cmake --install`: installs the program, its man page, shell completions and documentation. CUDA libraries are not
# included: the program finds them when it runs.
include(GNUInstallDirs)
install(TARGETS qtrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT qtrain)
install(FILES LICENSE NOTICE CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT qtrain)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT qtrain FILES_MATCHING PATTERN "*.md" PATTERN "*.svg"
        PATTERN "*.webp")
set(share ${CMAKE_BINARY_DIR}/share)  # made by the program as it is built (app/CMakeLists.txt)
install(FILES ${share}/qtrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT qtrain OPTIONAL)
install(FILES ${share}/qtrain.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME qtrain
        COMPONENT qtrain OPTIONAL)
install(FILES ${share}/_qtrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT qtrain OPTIONAL)
install(FILES ${share}/qtrain.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT qtrain OPTIONAL)
