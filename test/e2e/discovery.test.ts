/**
 * Data for indexes of paid services: the bazaar extension in the 402 of every priced route,
 * validated by the functions of the extension, and the list of resources through its own client.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { HTTPFacilitatorClient } from '@x402/core/server';
import {
  type McpDiscoveryExtension,
  extractDiscoveryInfo,
  sanitizeResourceServiceMetadata,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
  withBazaar,
} from '@x402/extensions/bazaar';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { TestApp } from '../app/test-app.ts';
import {
  BASE,
  SOLANA,
  type WalletFixture,
  evmClient,
  startWalletFixture,
} from './wallet-fixture.ts';

interface BazaarData {
  readonly info: {
    readonly input: { readonly body: Readonly<Record<string, unknown>> };
    readonly output?: { readonly example?: Readonly<Record<string, unknown>> };
  };
}

/** Size of all headers on the wire; proxies allow 4 KB by default. */
function sizeBytes({ headers }: Response): number {
  return [...headers].reduce((sum, [name, value]) => sum + name.length + value.length + 4, 30);
}

describe('discovery', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp();
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });

  const listed = () =>
    withBazaar(new HTTPFacilitatorClient({ url: `${farebox.url}/x402` })).extensions.bazaar;

  /** Every endpoint that sells something, with a value for each parameter of its path. */
  async function paths(): Promise<string[]> {
    const { items } = await listed().listResources({ type: 'http' });
    return items.map(({ resource }) => {
      assert.ok(resource.startsWith(`${fixture.origin}/api/v1/`), resource);
      return resource.slice(fixture.origin.length).replace(/\{\w+\}/, 'ethereum-mainnet');
    });
  }

  test('the 402 of every priced endpoint is valid data for an index, in a short header', async () => {
    const all = await paths();
    assert.ok(all.length >= 10, String(all.length));
    for (const path of all) {
      const answer = await fetch(fixture.origin + path, { method: 'POST' });
      assert.equal(answer.status, 402, path);
      const header = answer.headers.get('PAYMENT-REQUIRED') ?? '';
      assert.ok(sizeBytes(answer) < 4_096, `${path}: ${sizeBytes(answer)} bytes of headers`);
      const inHeader = decodePaymentRequiredHeader(header);
      const inBody = (await answer.json()) as typeof inHeader;
      for (const { extensions, resource } of [inHeader, inBody]) {
        const bazaar = extensions?.['bazaar'] as never;
        assert.deepEqual(validateDiscoveryExtensionSpec(bazaar), { valid: true }, path);
        assert.deepEqual(validateDiscoveryExtension(bazaar), { valid: true }, path);
        const { serviceName, tags } = sanitizeResourceServiceMetadata(resource);
        assert.equal(serviceName, farebox.config.service.title);
        assert.equal(tags?.length, 1, path);
      }
      const full = inBody.extensions?.['bazaar'] as BazaarData;
      assert.ok(full.info.output !== undefined, `${path} says what it answers`);
    }
  });

  test('the examples name models of this server and are valid requests', async () => {
    const { secret } = await farebox.account('1');
    for (const path of ['chat/completions', 'responses', 'messages']) {
      const { body } = await answerOf(path);
      const answer = await fetch(`${farebox.url}/${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      assert.equal(answer.status, 200, `${path}: ${await answer.clone().text()}`);
      assert.equal(body['model'], 'm');
    }
    const { example } = await answerOf('chat/completions');
    assert.equal(example?.['model'], 'm');
    assert.ok(Object.hasOwn(example ?? {}, `${farebox.config.service.name}_parameters`));
  });

  async function answerOf(path: string) {
    const answer = await fetch(`${farebox.url}/${path}`, { method: 'POST' });
    const { extensions } = (await answer.json()) as { extensions: { bazaar: BazaarData } };
    const { input, output } = extensions.bazaar.info;
    return { body: input.body, example: output?.example };
  }

  test('a facilitator extracts the data from the payment of an unmodified client', async () => {
    const required = await fetch(`${farebox.url}/crypto/rpc/ethereum-mainnet`, { method: 'POST' });
    const header = decodePaymentRequiredHeader(required.headers.get('PAYMENT-REQUIRED') ?? '');
    const payload = await evmClient(await fixture.evmWallet()).createPaymentPayload(header);
    const found = extractDiscoveryInfo(payload, payload.accepted);
    assert.equal(found?.resourceUrl, `${fixture.origin}/api/v1/crypto/rpc/:network`);
    assert.deepEqual(found.discoveryInfo.input, {
      type: 'http',
      method: 'POST',
      bodyType: 'json',
      body: { jsonrpc: '2.0', method: 'eth_blockNumber', params: [], id: 1 },
      pathParams: { network: 'ethereum-mainnet' },
    });
  });

  test('the list contains the paid tools of the MCP server, as valid data', async () => {
    const { items } = await listed().listResources({ type: 'mcp' });
    const mcp = new Client({ name: 'index', version: '1.0.0' });
    await mcp.connect(new StreamableHTTPClientTransport(new URL(`${fixture.origin}/mcp`)));
    const { tools } = await mcp.listTools();
    await mcp.close();
    const names = items.map(({ resource, accepts, extensions, ...item }) => {
      assert.equal(resource, `${fixture.origin}/mcp`);
      assert.equal(accepts.length, 4);
      const bazaar = extensions?.['bazaar'] as McpDiscoveryExtension;
      assert.deepEqual(validateDiscoveryExtensionSpec({ ...bazaar }), { valid: true });
      assert.deepEqual(validateDiscoveryExtension(bazaar), { valid: true });
      assert.equal(sanitizeResourceServiceMetadata({ url: resource, ...item }).tags?.length, 1);
      const { toolName, description, inputSchema } = bazaar.info.input;
      const tool = tools.find(({ name }) => name === toolName);
      assert.deepEqual([description, inputSchema], [tool?.description, tool?.inputSchema]);
      return toolName;
    });
    assert.equal(new Set(names).size, names.length);
    for (const name of ['chat', 'blockchain_rpc']) assert.ok(names.includes(name), name);
    assert.ok(!names.includes('balance'), 'it costs nothing');
  });

  test('the list is filtered and paged', async () => {
    const client = listed();
    const all = await client.listResources();
    const [first] = all.items;
    assert.deepEqual(
      first?.accepts.map(({ network, amount }) => [network, amount]),
      [
        [BASE, '10000000'],
        [SOLANA, '10000000'],
        [BASE, '1000000'],
        [SOLANA, '1000000'],
      ],
    );
    const onSolana = await client.listResources({ network: SOLANA, limit: 2, offset: 1 });
    assert.equal(onSolana.items.length, 2);
    assert.equal(onSolana.pagination.total, all.pagination.total);
    assert.equal(onSolana.items[0]?.resource, all.items[1]?.resource);
    assert.ok(
      onSolana.items.every(({ accepts }) => accepts.every((one) => one.network === SOLANA)),
    );
    for (const nothing of [
      { type: 'ftp' },
      { payTo: 'x' },
      { scheme: 'upto' },
      { extensions: 'y' },
    ]) {
      assert.equal((await client.listResources(nothing)).pagination.total, 0);
    }
    assert.equal(
      (await client.listResources({ extensions: 'bazaar' })).items.length,
      all.items.length,
    );
  });
});
