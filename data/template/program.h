#pragma once
#include <string>

#include "data/template/ast.h"
#include "data/template/chat_template.h"

namespace qtrain {

struct ChatTemplate::Program {
  std::string source;
  std::string name;  ///< for messages
  ParsedTemplate parsed;
};

}  // namespace qtrain
