#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace qtrain {

/// From now on, a read of a mapped file behind its end ends the process with the exit code and a message of
/// ErrorKind::input instead of SIGBUS: somebody has made the file shorter, or the disk cannot read it. Nothing can be
/// cleaned up then, as after a kill.
void install_shrunk_file_handler();

/// Sets whether that error is also printed as a JSON document, on standard output.
void set_shrunk_file_document(bool is_wanted);

/// Names the file of a mapping for that message, until `forget_mapping`. If there are too many mappings at a time, the
/// message names no file.
void name_mapping(std::span<const std::byte> bytes, const std::string& file);
void forget_mapping(std::span<const std::byte> bytes);

}  // namespace qtrain
