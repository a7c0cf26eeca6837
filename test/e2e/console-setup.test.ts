/** The configuration page of the console changes `farebox.yaml` in a browser. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type ConsoleFixture, startConsoleFixture } from './console-fixture.ts';

describe('the configuration page', () => {
  let fixture: ConsoleFixture;
  let file = '';
  /** Versions before the test. */
  let saved = 0;
  before(async () => {
    fixture = await startConsoleFixture('');
    file = join(fixture.farebox.config.dataFolder, 'farebox.yaml');
    writeFileSync(
      file,
      '# The shop\nengines:\n  gpu: # vLLM\n    url: http://127.0.0.1:1/v1\n    apiKey: sk-secret\n',
    );
  });
  after(() => fixture.stop());

  for (const [name, options] of [
    ['desktop', { width: 1280 }],
    ['phone', { width: 390, isDark: true }],
  ] as const) {
    test(`a section is changed, saved and restored on a ${name}`, async () => {
      const before = readFileSync(file, 'utf8');
      const visitor = await fixture.visitor(options);
      await visitor.signIn(await fixture.farebox.key({ kind: 'ADMIN' }));
      await visitor.open('/console/operator/configuration');
      await visitor.settled();
      await visitor.checkAccess('the sections');
      await visitor.checkWidth('the sections');
      const { page } = visitor;
      await page.getByRole('button', { name: 'engines', exact: true }).click();
      const drawer = page.getByRole('dialog');
      await drawer.getByText('gpu', { exact: true }).click();
      assert.equal(await drawer.getByLabel('apiKey').inputValue(), '********');
      await drawer.getByLabel('url').fill('http://127.0.0.1:2/v1');
      await visitor.checkAccess('the form');
      await visitor.checkWidth('the form');
      assert.ok(await drawer.getByRole('button', { name: 'Save' }).isDisabled());
      await drawer.getByRole('button', { name: 'Show the change' }).click();
      await drawer.getByText('+    url: http://127.0.0.1:2/v1').waitFor();
      await drawer.getByRole('button', { name: 'Save' }).click();
      await drawer.waitFor({ state: 'detached' });
      assert.equal(
        readFileSync(file, 'utf8'),
        before.replace('127.0.0.1:1', '127.0.0.1:2').replace('gpu: # vLLM\n', 'gpu:\n    # vLLM\n'),
      );
      const versions = page.getByRole('region', { name: 'Earlier versions' });
      await versions.locator('tbody tr').nth(saved).waitFor();
      await page.getByRole('button', { name: 'Restore' }).first().click();
      await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      assert.equal(readFileSync(file, 'utf8'), before);
      saved += 2;
      await visitor.close();
    });
  }

  test('Ctrl-K finds pages, models, accounts, settings and requests', async () => {
    const { accountId } = await fixture.farebox.account('1');
    for (const [width, isDark] of [
      [1280, false],
      [360, true],
    ] as const) {
      const visitor = await fixture.visitor({ width, isDark });
      const { page } = visitor;
      await visitor.signIn(await fixture.farebox.key({ kind: 'ADMIN' }));
      await visitor.open('/console');
      await visitor.settled();
      await visitor.checkWidth('the overview');
      const go = async (text: string, title: string): Promise<string> => {
        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Search the console' }).fill(text);
        await page.getByRole('option', { name: title }).first().waitFor();
        await visitor.checkAccess('the search');
        await visitor.checkWidth('the search');
        while (
          (await page.locator('[role=option][aria-selected=true]').textContent())?.includes(
            title,
          ) !== true
        ) {
          await page.keyboard.press('ArrowDown');
        }
        await page.keyboard.press('Enter');
        await page.getByRole('dialog', { name: 'Search' }).waitFor({ state: 'detached' });
        return page.evaluate<string>('location.pathname + location.search');
      };
      const closeDrawer = async (): Promise<void> => {
        const drawer = page.getByRole('dialog');
        await drawer.waitFor();
        await page.keyboard.press('Escape');
        await drawer.waitFor({ state: 'detached' });
      };
      assert.equal(await go('budg', 'Budgets'), '/console/budgets');
      assert.equal(
        await go('limits', 'Configuration'),
        '/console/operator/configuration?open=limits',
      );
      await closeDrawer();
      assert.equal(await go(accountId, 'Account'), `/console/operator/accounts?open=${accountId}`);
      await closeDrawer();
      await visitor.close();
    }
  });

  test('an invalid value is explained before anything is saved', async () => {
    const visitor = await fixture.visitor();
    await visitor.signIn(await fixture.farebox.key({ kind: 'ADMIN' }));
    await visitor.open('/console/operator/configuration?open=limits');
    const { page } = visitor;
    await page.getByLabel('starterCreditUsd').fill('much');
    await page.getByRole('button', { name: 'Show the change' }).click();
    await page.getByText(/limits\.starterCreditUsd: Must be an amount of USD/).waitFor();
    assert.ok(await page.getByRole('button', { name: 'Save' }).isDisabled());
    await visitor.close();
  });
});
