/** The page at `/`: what this is, how to begin, and where the rest is. */
import { API_URL, RAILS, TITLE } from '../page-facts.ts';
import { CodeTabs } from '../parts/code.tsx';
import { Mark } from '../parts/mark.tsx';
import { useTitle } from '../parts/page-head.tsx';
import { session } from '../session.ts';
import { chatSamples } from '../samples.ts';

export function Welcome() {
  useTitle('Welcome');
  const isIn = session.value !== null && session.value !== undefined;
  const body = { model: 'default', messages: [{ role: 'user', content: 'Hello' }] };
  const pays =
    RAILS.length > 0
      ? 'Pay from a prepaid balance, by API key or straight from a wallet with USDC.'
      : 'Pay per request from a prepaid balance, by API key.';
  return (
    <div class="welcome">
      <header>
        <a class="brand" href="/">
          <Mark />
          {TITLE}
        </a>
        <nav aria-label="Main">
          <a href="/docs">Reference</a>
          <a href="/console" class="button primary">
            {isIn ? 'Console' : 'Sign in'}
          </a>
        </nav>
      </header>
      <main id="content">
        <section class="hero">
          <h1>One address for every model</h1>
          <p class="lead">
            An inference API in the OpenAI protocol. {pays} Each answer says what it cost.
          </p>
          <p class="row">
            <a href="/console/playground" class="button primary">
              Try it in the playground
            </a>
            <a href="/docs" class="button">
              Read the reference
            </a>
          </p>
          <dl class="address">
            <dt>Base URL</dt>
            <dd>
              <code>{API_URL}</code>
            </dd>
          </dl>
        </section>
        <CodeTabs samples={chatSamples(body)} />
        <section class="points">
          <Point title="Your client works">
            Set the base URL and the key of any OpenAI SDK. Streaming, tools, images and JSON
            schemas are the protocol's own.
          </Point>
          <Point title="Exact to nine decimals">
            The most a request can cost is set aside before it runs, the true cost is taken when it
            ends. A balance never goes below zero, and every request has its receipt.
          </Point>
          <Point title="Safe to retry">
            Send an <code>Idempotency-Key</code>: however often a request is repeated, it runs and
            is charged once.
          </Point>
          <Point title="See all of it">
            The console shows balance, requests, keys and limits as they change, and lets you talk
            to every model on offer.
          </Point>
        </section>
      </main>
      <footer>
        <a href="/docs">Reference</a>
        <a href={`${API_URL}/openapi.json`}>OpenAPI</a>
        <a href="/console">Console</a>
        <span>This page needs nothing from other servers.</span>
      </footer>
    </div>
  );
}

function Point({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <article>
      <h2>{title}</h2>
      <p>{children}</p>
    </article>
  );
}
