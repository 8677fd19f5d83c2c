#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "core/http/message.h"

namespace qtrain::http {

/// Parses one request piece by piece with Boost.Beast.
class MessageParser {
 public:
  /// Fills `request`, which must outlive this object.
  explicit MessageParser(Request& request);
  ~MessageParser();
  MessageParser(const MessageParser&) = delete;
  MessageParser& operator=(const MessageParser&) = delete;

  /// Parses the next bytes. Returns how many it consumed, which may be none until there are more. Throws Problem 400,
  /// 413 or 505.
  std::size_t put(std::string_view bytes);
  bool has_head() const;
  /// Limits the size of the body. Call it after the head is complete and before any of the body.
  void limit_body(std::size_t bytes);
  bool is_done() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtrain::http
