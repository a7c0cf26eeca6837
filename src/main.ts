/** The program: reads the command line and runs one command. */
import { SECOND_MS, systemClock } from './core/clock.ts';
import { makeLasting } from './core/young-generation.ts';

/** Time for connections to close after the command has ended. */
const EXIT_MS = SECOND_MS;

// Only the user of the server may read its files and those of its child processes.
process.umask(0o077);

// Neither a full disk nor a closed terminal ends a server that cannot write its log or its first lines.
process.stderr.on('error', () => undefined);
// A closed pipe, as of `farebox usage | head`, fails no command; incomplete output does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') return;
  process.exitCode = 1;
  process.stderr.write(`The output is incomplete: ${error.message}\n`);
});

const { runCommand } = await makeLasting(() => import('./cli/cli.ts'));
const code = await runCommand({
  argv: process.argv.slice(2),
  env: process.env,
  cwd: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: () => process.stdin,
  onSignal: (signal, listener) => process.on(signal, listener),
});
// Incomplete output has set it.
process.exitCode ||= code;

// A call to a peer that does not respond must not keep the process alive. Output is written before.
process.stdout.write('', () => {
  systemClock().after(EXIT_MS, () => process.exit());
});
