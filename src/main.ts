/** The program: reads the command line and runs one command. */
import { runCommand } from './cli/cli.ts';

process.exitCode = await runCommand({
  argv: process.argv.slice(2),
  env: process.env,
  cwd: process.cwd(),
  stdout: process.stdout,
  stderr: process.stderr,
  onSignal: (signal, listener) => process.on(signal, listener),
});
