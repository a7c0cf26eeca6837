/** The reference page of the command line, made from the help that the commands print. */
import { COMMANDS, helpOf } from '../../src/cli/cli.ts';

const INTRODUCTION = `# Command line

<!-- prettier-ignore-start -->

_Generated from the commands' own help by \`npx node scripts/write-reference.ts\`._

In the checkout: \`npx farebox <command>\`. Every command takes \`--help\` and \`--json\`, and works beside
a running server. The exit code is 0 when it is done, 1 when it failed, 2 when the words were wrong.

| command | |
| --- | --- |
`;

/** The whole page as Markdown. */
export function cliPage(): string {
  const rows = COMMANDS.map(
    ({ name, summary }) =>
      `| [\`farebox ${name}\`](#farebox-${name.replace(' ', '-')}) | ${summary} |\n`,
  );
  const parts = COMMANDS.map(
    (command) =>
      `\n## \`farebox ${command.name}\`\n\n\`\`\`text\n${helpOf(command).trimEnd()}\n\`\`\`\n`,
  );
  return `${INTRODUCTION}${rows.join('')}${parts.join('')}\n<!-- prettier-ignore-end -->\n`;
}
