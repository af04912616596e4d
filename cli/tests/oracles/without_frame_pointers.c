/*
 * A native add-on as compilers of other languages make them: it uses the register of frame pointers for what it likes. `spin(what, n)` does so for
 * n turns of a loop, and takes all time in the function named `turning`; `what` tells what the register holds.
 */
#include <stddef.h>
#include <stdint.h>

/* js_native_api.h, as far as it is of use here. */
typedef struct env *napi_env;
typedef struct value *napi_value;
struct info;
typedef napi_value (*napi_callback)(napi_env, struct info *);
struct reference;
struct work;
int napi_create_async_work(napi_env, napi_value, napi_value, void (*)(napi_env, void *),
			   void (*)(napi_env, int, void *), void *, struct work **);
int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_create_reference(napi_env, napi_value, uint32_t, struct reference **);
int napi_create_string_utf8(napi_env, const char *, size_t, napi_value *);
int napi_get_cb_info(napi_env, struct info *, size_t *, napi_value *, napi_value *, void **);
int napi_get_named_property(napi_env, napi_value, const char *, napi_value *);
int napi_get_reference_value(napi_env, struct reference *, napi_value *);
int napi_get_value_int64(napi_env, napi_value, int64_t *);
int napi_queue_async_work(napi_env, struct work *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);

extern char **environ;

__attribute__((noinline)) static void turning(uintptr_t held, int64_t turns)
{
	__asm__ volatile("push %%rbp\n\t"
			 "mov %0, %%rbp\n"
			 "1:\tdec %1\n\t"
			 "jnz 1b\n\t"
			 "pop %%rbp"
			 : "+r"(held), "+r"(turns)
			 :
			 : "cc", "memory");
}

/* What a call of `spin` is for. */
struct task {
	napi_env env;
	napi_value object;
	int64_t turns;
};

/* Gets a property, with its getter, while the register holds that. */
__attribute__((noinline)) static void getting(uintptr_t held, struct task *task)
{
	napi_value value;
	register void *env __asm__("rdi") = task->env;
	register void *object __asm__("rsi") = task->object;
	register const char *name __asm__("rdx") = "property";
	register napi_value *result __asm__("rcx") = &value;

	__asm__ volatile("mov %%rsp, %%r12\n\t"
			 "mov %%rbp, %%r13\n\t"
			 "sub $128, %%rsp\n\t"
			 "and $-16, %%rsp\n\t"
			 "mov %4, %%rbp\n\t"
			 "call *%5\n\t"
			 "mov %%r13, %%rbp\n\t"
			 "mov %%r12, %%rsp"
			 : "+r"(env), "+r"(object), "+r"(name), "+r"(result)
			 : "r"(held), "r"(napi_get_named_property)
			 : "rax", "r8", "r9", "r10", "r11", "r12", "r13", "cc", "memory");
}

/* Words that nobody has written: what older calls have left. More of them than are searched for a frame. */
__attribute__((noinline)) static void deep(uintptr_t held, struct task *task)
{
	volatile uint64_t words[400];

	words[0] = held ? held : (uintptr_t)&words[200];
	getting(words[0], task);
	turning(words[0], task->turns);
	words[399] = 0;
}

/* Fewer: a search gets to the frame of whoever called. */
__attribute__((noinline)) static void shallow(uintptr_t held, struct task *task)
{
	volatile uint64_t words[60];

	words[0] = held;
	getting(words[0], task);
	turning(words[0], task->turns);
	words[59] = 0;
}

static napi_value spin(napi_env env, struct info *info)
{
	size_t count = 3;
	napi_value arguments[3], value;
	struct task task = {.env = env};
	int64_t what = 0;

	napi_get_cb_info(env, info, &count, arguments, 0, 0);
	napi_get_value_int64(env, arguments[0], &what);
	napi_get_value_int64(env, arguments[1], &task.turns);
	task.object = arguments[2];
	/* The getter leaves frames below. */
	napi_get_named_property(env, task.object, "property", &value);
	switch (what) {
	case 0: /* an index */
		deep(1, &task);
		break;
	case 1: /* something of its own */
		deep(0, &task);
		break;
	case 2: /* something far up the stack */
		deep((uintptr_t)&arguments + 4096, &task);
		break;
	case 3: /* something above all frames */
		deep((uintptr_t)environ, &task);
		break;
	case 4: /* something that is on no stack */
		deep((uintptr_t)&spin & ~7ULL, &task);
		break;
	default:
		shallow(1, &task);
	}
	return 0;
}

/* `later(n, object)`: the same, called by the event loop. */
static struct {
	struct reference *object;
	struct work *work;
	int64_t turns;
} asked;

static void do_nothing(napi_env env, void *data)
{
}

static void when_done(napi_env env, int status, void *data)
{
	struct task task = {.env = env, .turns = asked.turns};
	napi_value value;

	napi_get_reference_value(env, asked.object, &task.object);
	napi_get_named_property(env, task.object, "property", &value);
	deep(1, &task);
}

static napi_value later(napi_env env, struct info *info)
{
	size_t count = 2;
	napi_value arguments[2], name;

	napi_get_cb_info(env, info, &count, arguments, 0, 0);
	napi_get_value_int64(env, arguments[0], &asked.turns);
	napi_create_reference(env, arguments[1], 1, &asked.object);
	napi_create_string_utf8(env, "later", 5, &name);
	napi_create_async_work(env, 0, name, do_nothing, when_done, 0, &asked.work);
	napi_queue_async_work(env, asked.work);
	return 0;
}

napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
	napi_value function;

	napi_create_function(env, "spin", 4, spin, 0, &function);
	napi_set_named_property(env, exports, "spin", function);
	napi_create_function(env, "later", 5, later, 0, &function);
	napi_set_named_property(env, exports, "later", function);
	return exports;
}
