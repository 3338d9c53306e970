// oneDNN as installed is not built for the thread sanitizer: it cannot see the atomics that guard
// oneDNN's own caches, so what it intercepts in there is not looked at.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libdnnl.so\n"; }
