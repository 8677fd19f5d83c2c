#pragma once
#include <string>

#include "text/template/ast.h"
#include "text/template/chat_template.h"

namespace qtrain {

struct ChatTemplate::Program {
  std::string source;
  std::string name;  ///< for messages
  ParsedTemplate parsed;
};

}  // namespace qtrain
