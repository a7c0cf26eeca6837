/** The page at `/docs`: Swagger UI over the OpenAPI document of this server, in the viewer's colours. */
import SwaggerUI from 'swagger-ui-dist/swagger-ui-bundle.js';
import 'swagger-ui-dist/swagger-ui.css';
import './reference.css';

const dark = matchMedia('(prefers-color-scheme: dark)');
const applyColours = (): void => {
  document.documentElement.classList.toggle('dark-mode', dark.matches);
};
applyColours();
dark.addEventListener('change', applyColours);

SwaggerUI({
  url: document.documentElement.dataset['openapi'],
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  filter: true,
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  // A credential stays in the memory of the tab.
  persistAuthorization: false,
  validatorUrl: 'none',
  // The page may have been opened under another name of the server than its public address.
  requestInterceptor: (request: { url: string }) => {
    const { pathname, search } = new URL(request.url, location.origin);
    request.url = location.origin + pathname + search;
    return request;
  },
});
