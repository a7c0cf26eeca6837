/** The reference page of the command line, made from the help that the commands print. */
import { commandLine, commandsBelow, nameOf, summaryOf } from '../../src/cli/cli.ts';

const INTRODUCTION = `# Command line

<!-- prettier-ignore-start -->

_Generated from the commands' own help by \`npx node scripts/write-reference.ts\`._

In the checkout: \`npx farebox <command>\`. Every command takes \`--help\` and \`--json\`, and works beside
a running server. The exit code is 0 when it is done, 1 when it failed, 2 when the words were wrong.
\`--config <file>\` (\`FAREBOX_CONFIG\`) names the settings, \`--data <folder>\` (\`FAREBOX_DATA\`) the data folder.

| command | |
| --- | --- |
`;

/** The whole page as Markdown. */
export function cliPage(): string {
  const nowhere = { write: () => undefined, columns: 100 };
  const console = { argv: [], env: {}, cwd: '', onSignal: () => undefined };
  const { program } = commandLine({ ...console, stdout: nowhere, stderr: nowhere });
  // The introduction has the options of all commands, once.
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
