/** Generates the reference page of the commands from their `--help`. */
import { commandLine } from '../../src/cli/cli.ts';
import { commandsBelow, nameOf, summaryOf } from '../../src/cli/command.ts';

const INTRODUCTION = `# Command line

<!-- prettier-ignore-start -->

_Generated from the \`--help\` of the commands by \`npx node scripts/write-reference.ts\`._

This page lists every command and its options. In a checkout, run \`npx farebox <command>\`. Every command accepts
\`--help\` and \`--json\`, and can run beside a server. \`--config <file>\` (\`FAREBOX_CONFIG\`) sets the
configuration file, \`--data <folder>\` (\`FAREBOX_DATA\`) the data folder. The exit code is 0 after success, 1
after a failure, and 2 if the arguments are invalid.

| command | effect |
| --- | --- |
`;

/** The whole page as Markdown. */
export function cliPage(): string {
  const nowhere = { write: () => undefined, columns: 100 };
  const console = { argv: [], env: {}, cwd: '', onSignal: () => undefined };
  const { program } = commandLine({ ...console, stdout: nowhere, stderr: nowhere });
  // The introduction lists the options that all commands share.
  Object.assign(program.configureHelp(), { showGlobalOptions: false });
  const commands = commandsBelow(program);
  const rows = commands.map((command) => {
    const name = nameOf(command);
    return `| [\`farebox ${name}\`](#farebox-${name.replace(' ', '-')}) | ${summaryOf(command)} |\n`;
  });
  const parts = commands.map((command) => {
    const help = command.helpInformation();
    return `\n## \`farebox ${nameOf(command)}\`\n\n\`\`\`text\n${help.trimEnd()}\n\`\`\`\n`;
  });
  return `${INTRODUCTION}${rows.join('')}${parts.join('')}\n<!-- prettier-ignore-end -->\n`;
}
