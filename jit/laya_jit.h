/* The C interface of the engine: everything another language or application needs to compile a
 * kernel of its own, keep it in the cache, and launch it.
 *
 * Conventions: a function that can fail returns NULL or a laya_status other than LAYA_OK and, if
 * `error` is not NULL, stores a message that the caller frees with laya_error_free(). Strings are
 * UTF-8, NUL-terminated, and copied. Handles are freed with their own laya_..._free(), which
 * accepts NULL. Every function may be called from any thread; a stream by one thread at a time. */
#ifndef LAYA_JIT_H
#define LAYA_JIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LAYA_API __attribute__((visibility("default")))
#else
#define LAYA_API
#endif

typedef enum {
  LAYA_OK = 0,
  LAYA_BAD_SPEC,       /* unknown template, missing or illegal parameter */
  LAYA_BAD_INPUT,      /* an argument of the call is wrong */
  LAYA_COMPILE_FAILED, /* the message ends with the compiler's log */
  LAYA_NOT_CACHED,     /* LAYA_JIT=never, and the cache lacks the kernel */
  LAYA_UNAVAILABLE,    /* no compiler, driver or GPU */
  LAYA_DEVICE_ERROR,   /* the driver refused */
  LAYA_STORE_ERROR,
  LAYA_INTERNAL
} laya_status;

typedef enum { LAYA_CUDA = 0, LAYA_CPU = 1 } laya_backend;
typedef enum { LAYA_LOG_ERROR = 0, LAYA_LOG_WARNING, LAYA_LOG_INFO, LAYA_LOG_DEBUG } laya_log_level;

typedef struct laya_engine laya_engine;
typedef struct laya_device laya_device;
typedef struct laya_stream laya_stream;
typedef struct laya_kernel laya_kernel;
typedef struct laya_buffer laya_buffer;

/* One line without a newline; may be called from any thread. */
typedef void (*laya_log_fn)(void* user, laya_log_level level, const char* line);

/* A compile-time parameter: an integer, or, where `word` is not NULL, one of the template's words.
 */
typedef struct {
  const char* name;
  int64_t value;
  const char* word;
} laya_param;

/* Address and size in bytes of one launch argument. A pointer argument is a device address. */
typedef struct {
  const void* value;
  uint32_t bytes;
} laya_arg;

typedef struct {
  uint32_t grid[3];
  uint32_t block[3]; /* the CPU backend ignores it; must not be 0 */
  uint32_t dynamic_shared_bytes;
} laya_launch_shape;

typedef struct {
  int64_t compiled, disk_hits, memory_hits, failed;
  double compile_seconds;
} laya_stats;

LAYA_API void laya_error_free(char* error);

/* Options come from the environment (LAYA_CACHE_DIR, ...); a `cache_dir` that is not NULL comes
 * before LAYA_CACHE_DIR. `log` may be NULL. */
LAYA_API laya_engine* laya_engine_create(const char* cache_dir, laya_log_fn log, void* user,
                                         char** error);
LAYA_API void laya_engine_free(laya_engine* engine);
LAYA_API laya_stats laya_engine_stats(const laya_engine* engine);

/* Adds a template in the form that jit/template.h describes. */
LAYA_API laya_status laya_engine_add_template(laya_engine* engine, const char* name,
                                              laya_backend backend, const char* text, char** error);
/* Adds a header that templates may include as #include "name". */
LAYA_API laya_status laya_engine_add_header(laya_engine* engine, const char* name,
                                            laya_backend backend, const char* text, char** error);

/* `target`: "sm_90a", "cpu", ...; laya_device_target() gives the one of a device. The kernel may
 * outlive the engine. */
LAYA_API laya_kernel* laya_kernel_get(laya_engine* engine, const char* template_name,
                                      const char* target, const laya_param* params,
                                      size_t param_count, laya_status* status, char** error);
LAYA_API void laya_kernel_free(laya_kernel* kernel);
/* Queues the kernel; counts and sizes of `args` are checked against the template's declaration. */
LAYA_API laya_status laya_kernel_launch(const laya_kernel* kernel, laya_stream* stream,
                                        const laya_launch_shape* shape, const laya_arg* args,
                                        size_t arg_count, char** error);

/* "cpu", "cuda", "cuda:1" */
LAYA_API laya_device* laya_device_open(const char* name, laya_status* status, char** error);
/* Calls task(context, i) once for each i in [0, count), on any threads, and returns when all calls
 * have returned; see Executor in jit/cpu_threads.h. */
typedef void (*laya_execute_fn)(void* user, int count, void (*task)(void* context, int index),
                                void* context);
/* The host's CPU with `threads` threads (0: one per core), which stay on cores of their own where
 * `are_pinned` is not 0. With an `execute` that is not NULL the work runs on the application's
 * threads instead, `threads` tasks at most at a time; it must be callable as long as the device
 * lives. */
LAYA_API laya_device* laya_cpu_device_open(int threads, int are_pinned, laya_execute_fn execute,
                                           void* user, laya_status* status, char** error);
LAYA_API void laya_device_free(laya_device* device);
LAYA_API const char* laya_device_target(
    const laya_device* device); /* lives as long as the device */

LAYA_API laya_buffer* laya_buffer_create(laya_device* device, size_t bytes, char** error);
LAYA_API void* laya_buffer_data(const laya_buffer* buffer); /* device address */
/* Must not be called while queued work still uses the buffer. */
LAYA_API void laya_buffer_free(laya_buffer* buffer);

LAYA_API laya_stream* laya_stream_create(laya_device* device, char** error);
/* Waits for the queued work. */
LAYA_API laya_status laya_stream_synchronize(laya_stream* stream, char** error);
/* Both are queued; the host memory must stay valid until laya_stream_synchronize(). */
LAYA_API laya_status laya_copy_to_device(laya_stream* stream, void* device_dst,
                                         const void* host_src, size_t bytes, char** error);
LAYA_API laya_status laya_copy_to_host(laya_stream* stream, void* host_dst, const void* device_src,
                                       size_t bytes, char** error);
LAYA_API void laya_stream_free(laya_stream* stream);

#ifdef __cplusplus
}
#endif

#endif
