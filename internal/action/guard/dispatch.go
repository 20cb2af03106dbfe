package guard

// hiddenArg is the first argument of a guard process.
const hiddenArg = "__guard"

// Dispatch runs the guard process if args, the program's arguments without its
// name, ask for it, and returns its exit status. Programs that use Run call it
// first thing in main, tests in TestMain:
//
//	if handled, code := guard.Dispatch(os.Args[1:]); handled {
//		os.Exit(code)
//	}
func Dispatch(args []string) (handled bool, code int) {
	if len(args) == 0 || args[0] != hiddenArg {
		return false, 0
	}
	return true, dispatch(args[1:])
}
