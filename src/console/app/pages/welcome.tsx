/** The welcome page at `/`: what the service does, a code sample, and links. */
import { API_URL, RAILS } from '../page-facts.ts';
import { CodeTabs } from '../parts/code.tsx';
import { Brand } from '../parts/brand.tsx';
import { useTitle } from '../parts/page-head.tsx';
import { session } from '../session.ts';
import { chatSamples } from '../code-samples.ts';

export function Welcome() {
  useTitle('Welcome');
  const isIn = session.value !== null && session.value !== undefined;
  const body = { model: 'default', messages: [{ role: 'user', content: 'Hello' }] };
  const pays =
    RAILS.length > 0
      ? 'Pay per request from a prepaid balance with an API key, or with USDC from a wallet.'
      : 'Pay per request from a prepaid balance with an API key.';
  return (
    <div class="welcome">
      <header>
        <Brand />
        <nav aria-label="Main">
          <a href="/docs">API reference</a>
          <a href="/console" class="button primary">
            {isIn ? 'Console' : 'Sign in'}
          </a>
        </nav>
      </header>
      <main id="content">
        <section class="hero">
          <h1>One API for all models</h1>
          <p class="lead">
            An OpenAI-compatible inference API. {pays} Each response contains its cost.
          </p>
          <p class="row">
            <a href="/console/playground" class="button primary">
              Open the playground
            </a>
            <a href="/docs" class="button">
              Read the API reference
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
          <Point title="Works with your client">
            Set the base URL and the API key of any OpenAI SDK. Streaming, tools, images and JSON
            schemas work as in the OpenAI API.
          </Point>
          <Point title="Exact billing">
            The server holds the largest possible cost before a request runs, and charges the actual
            cost to nine decimals. The balance is never negative, and each request has a receipt.
          </Point>
          <Point title="Safe retries">
            Requests with the same <code>Idempotency-Key</code> run once and are charged once.
          </Point>
          <Point title="Live console">
            The console shows balance, requests, keys and limits as they change, and has a
            playground for all models.
          </Point>
        </section>
      </main>
      <footer>
        <a href="/docs">API reference</a>
        <a href={`${API_URL}/openapi.json`}>OpenAPI</a>
        <a href="/console">Console</a>
        <span>This page loads nothing from other servers.</span>
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
