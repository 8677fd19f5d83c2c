#pragma once
#include <cstddef>
#include <memory>
#include <string_view>

#include "core/http/message.h"

namespace qtrain::http {

/// Boost.Beast's parser of one request, which fills it piece by piece.
class MessageParser {
 public:
  /// The request outlives this.
  explicit MessageParser(Request& request);
  ~MessageParser();
  MessageParser(const MessageParser&) = delete;
  MessageParser& operator=(const MessageParser&) = delete;

  /// Takes bytes that follow those taken before; returns how many, which may be none until there are more. Problem:
  /// 400, 413.
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
