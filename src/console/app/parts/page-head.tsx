/** The head of a page: title, description and buttons. Sets the title of the browser tab. */
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { TITLE } from '../page-facts.ts';

interface PageHeadProps {
  readonly title: string;
  readonly lead?: ComponentChildren;
  readonly children?: ComponentChildren;
}

export function PageHead({ title, lead, children }: PageHeadProps) {
  useTitle(title);
  return (
    <header class="head">
      <div>
        <h1>{title}</h1>
        {lead !== undefined && <p class="lead">{lead}</p>}
      </div>
      {children !== undefined && <div class="actions">{children}</div>}
    </header>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · ${TITLE}`;
  }, [title]);
}
