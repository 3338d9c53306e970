#include "apps/cli/exit_code.h"

#include "apps/cli/console.h"
#include "core/check.h"

#include <new>

namespace lockstep::apps {
namespace {

int code_of(Fault fault) {
  switch (fault) {
    case Fault::file:
      return kFile;
    case Fault::device:
      return kDevice;
    case Fault::numeric:
      return kNumeric;
    case Fault::communication:
      return kCommunication;
  }
  return kUnexpected;
}

}  // namespace

int guarded(const std::function<int()>& program) noexcept {
  try {
    try {
      return program();
    } catch (const UsageError& e) {
      complain(e.what());
      return kUsage;
    } catch (const SystemError& e) {
      complain(e.what());
      return code_of(e.fault());
    } catch (const std::bad_alloc&) {
      complain("out of memory; a smaller batch or model needs less");
      return kDevice;
    } catch (const std::exception& e) {
      complain(std::string("unexpected: ") + e.what());
      return kUnexpected;
    }
  } catch (...) {  // no memory for the message itself
    return kUnexpected;
  }
}

}  // namespace lockstep::apps
