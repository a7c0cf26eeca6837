/**
 * Ends the processes that a test process started when it ends, also by `SIGKILL`. A shell holds the
 * other end of a pipe and a list of the processes, and kills them when the pipe closes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';

/**
 * Shell script: reads `+ pid`, `- pid` and `folder path` until its input ends, then kills the
 * processes and removes the folders.
 */
const WATCHER = `
trap '' HUP INT TERM
pids=' '
while read -r verb what; do
  case $verb in
    +) pids="$pids$what " ;;
    -) pids="\${pids%% $what *} \${pids#* $what }" ;;
    folder) set -- "$@" "$what" ;;
  esac
done
for pid in $pids; do kill -9 "$pid"; done
test $# -eq 0 && exit
rm -rf -- "$@"
sleep 0.5
rm -rf -- "$@"
`;

let watcher: Writable | undefined;

/** Kills the child when this process ends. */
export function endWithUs<Child extends ChildProcess>(child: Child): Child {
  const { pid } = child;
  // A process that failed to start reports its error itself.
  if (pid === undefined) return child;
  child.once('exit', endProcessWithUs(pid));
  return child;
}

/** The same for a process that is not a child. Call the result when it has ended. */
export function endProcessWithUs(pid: number): () => void {
  tell(`+ ${pid}`);
  return () => tell(`- ${pid}`);
}

/** Removes a folder after the processes of `endWithUs` have ended. */
export function removeWithUs(folder: string): void {
  tell(`folder ${folder}`);
}

function tell(line: string): void {
  watcher ??= startWatcher();
  watcher.write(`${line}\n`);
}

function startWatcher(): Writable {
  const shell = spawn('/bin/sh', ['-c', WATCHER], {
    // Interrupts from the terminal are for the test process; the watcher notices its end.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  // Neither the watcher nor its pipe keeps this process alive.
  shell.unref();
  if (shell.stdin instanceof Socket) shell.stdin.unref();
  return shell.stdin;
}
